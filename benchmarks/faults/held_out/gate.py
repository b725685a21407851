"""Let programs compile side by side and run their measured steps alone on the device."""
import fcntl, os
_lock = open(os.environ.get("GATE", "/tmp/gate.lock"), "w")
def compiling(): fcntl.flock(_lock, fcntl.LOCK_SH)
def measuring(): fcntl.flock(_lock, fcntl.LOCK_UN); fcntl.flock(_lock, fcntl.LOCK_EX)
def done(): fcntl.flock(_lock, fcntl.LOCK_UN)
