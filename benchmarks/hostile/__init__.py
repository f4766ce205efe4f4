"""What one hostile client costs the others: attacks beside an honest client and a health probe."""
