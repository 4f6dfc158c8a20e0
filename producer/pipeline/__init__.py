"""Records become acknowledged batches; no protocol, no disk: ``accept`` is the door, ``pipeline`` joins the stages."""
