# Run by the jar with `python -c`: says over the private channel who is there, then serves.
import json
import os
import sys

channel = os.dup(1)
os.dup2(2, 1)  # prints of any library go to stderr and cannot break the protocol


def say(**facts):
    facts.update(python=sys.executable, version=".".join(map(str, sys.version_info[:3])))
    os.write(channel, (json.dumps(facts) + "\n").encode())


try:
    from iceberg_compact_sql.sql import bridge
except ImportError as error:
    say(missing=error.name or str(error))
    sys.exit(3)
except Exception as error:
    say(broken=f"{type(error).__name__}: {error}")
    sys.exit(4)
say(protocol=bridge.PROTOCOL)
bridge.serve(channel)
