"""What `roofline capture` puts on the path of the program it runs: standard library alone, for interpreters without roofline."""
