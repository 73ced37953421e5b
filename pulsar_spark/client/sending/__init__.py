"""Producers: from the arguments of ``send`` to publish commits and their receipts."""
