"""Runs the cells of a notebook in a real kernel: JSON list of sources in, of their outputs out.

usage: notebook.py CELLS
"""

import json
import os
import sys

import nbformat
from nbclient import NotebookClient

for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
    os.environ[name] = os.environ["HOME"]
cells = [nbformat.v4.new_code_cell(source) for source in json.loads(sys.argv[1])]
notebook = nbformat.v4.new_notebook(cells=cells)
NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
print(json.dumps([cell.outputs for cell in notebook.cells]))
