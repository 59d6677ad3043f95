"""The machine underneath: files and clocks, behind contracts that a simulator can stand in for."""
