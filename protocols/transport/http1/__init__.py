"""HTTP/1 as our own engine has it: heads, bodies, answers, connections."""
