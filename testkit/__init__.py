"""The test kit: faults for the file system, and real servers for tests and benchmarks. No part of the product."""
