"""The specification that runs: a chapter per folder, a table per rule.

A case is prose, a source (the number of a rule of the semantics, or a recording) and a table; each row is one round, at
the second in its first column. What is asked stands left, what must come of it right:

| column | what it holds |
|---|---|
| `s` | the second at which the round happens; nothing is asked or delivered at those left out |
| `publish` | entries published just before, as numbers of messages: `1*3` is three single messages, `4 4` two batches of four, `1@7` one with deliver time 7; `1=k` one with key k, `1=k^o` with ordering key o, `1=base64:AQI` with a key of bytes, `3=k,l,m` a batch of three keys, `A:0/3` the first of three chunks of a message with uuid A, `A:0-2/3` all of them, `q.A:0/3` likewise of the producer q |
| `requests` | what is asked, in order, separated by `;` |
| `delivered` | who gets what in this round; empty is nobody, nothing |
| `refused` | who is refused, and how; empty is nobody |
| `reset` | the consumers told to forget what they have received |
| `letters` | all dead letters of the subscription so far, by the entry they are of; the count is the number of attempts |
| `later` | likewise its retry letters; the count is how often the message was put off with that |
| `due`, `waits` | pending entries that come back then; entries that nobody got so far and nobody gets before |
| `meant` | of how many entries a request to cancel or to move deliver times was, of those it names |
| `backlog`, `delayed` | what statistics say: entries not acknowledged, entries that wait |
| the rest | the subscription after the round: `mark-delete`, `read`, `acked`, `pending`, `replay`, `permits`, `unacked`, `blocked`, `active`, `type` |

Positions: `3` or `0-4`; `3+2` with a redelivery count of 2 (else 0); `3{0,2}` with only the batch indexes 0 and 2 still
unacknowledged; `p1:3` in partition 1; `3@7` due at second 7; `3[0,2,3]` delivered as the message of these chunks. Consumers: `A`; `A+B` where either will do (which consumer
of a Shared subscription gets an entry is open, semantics 0.28); `other/A` a consumer of the subscription `other`. A
state's empty cell is not asked, `none` is empty.

All cases of a file run in one history, each on a topic of its own: that no rule leaks into another topic is thereby
tested too.
"""
