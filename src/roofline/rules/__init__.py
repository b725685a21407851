"""Rules about programs, a folder for each kind of finding and a file for each cause. They receive a `Graph` and nothing else."""
