"""Modules that `roofline capture` puts on the path of the program it runs; standard library only, for interpreters without roofline."""
