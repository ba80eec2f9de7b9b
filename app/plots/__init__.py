"""Live pictures drawn with pyqtgraph, shared by every panel."""
