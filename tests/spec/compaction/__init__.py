"""What compaction keeps, a table a rule. A row is a publish with a compaction behind it: what is published stands left,
what is in the compacted view then stands right.

A message is `key=payload`; `key=-` has a null value, `key=` an empty one, `=payload` no key. `[k=a l=b]` is a batch,
`k=abc/3` a message in three chunks, `k=abc~` one that is compressed, and `~k=abc` one that is encrypted. In the view
`k=a@3` lies at position 3, `k=a@3{1}` has batch index 1.

All cases of a file are partitions of one topic, so each compaction has them all.
"""
