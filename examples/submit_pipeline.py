"""The whole pipeline under spark-submit: `penstock pipeline`, with the master and settings of the command line.

spark-submit --master spark://host:7077 examples/submit_pipeline.py shop.toml --json
"""

from __future__ import annotations

import sys

from penstock.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["pipeline", *sys.argv[1:]]))
