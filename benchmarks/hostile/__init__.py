"""What one hostile client costs the others: attacks next to an honest client and a health probe."""
