"""The steps of a round (read requests, gather rows, run the plan, take its result into memory, commit), and the
streaming query that runs rounds until the broker stops.

**Who decides what.** The plan (``transforms``) alone decides facts about entries, one step each.

| entry fact | semantics | decided in |
|---|---|---|
| which entries are acknowledged | 3.11, 3.12, 3.16 | acknowledge.apply_acknowledgements |
| which entries come back, and when | 2.12, 2.19, 4.15, 4.16, 4.21 | redelivery.give_back |
| which entries are dead | 4.26, 4.27 | redelivery.give_back |
| which consumers and subscriptions are blocked | 4.4, 4.5 | blocked.find_blocked |
| which entries are due | 5.1-5.4 | offer.offer_candidates |
| which entries are offered first | 2.18, 4.7 | offer.offer_candidates |
| how many entries each consumer's turn takes | 2.16, 2.17, 4.6 | turns.line_up |
| to which consumer each entry goes | 2.15 | deal.deal_out |
| how many permits are left | 2.16 | account.take_account |

Two inputs of the plan depend on more than the round's rows:

| input | semantics | made in |
|---|---|---|
| what is left of a batch, after all requests in order | 3.20 | acknowledgements.Acknowledgements.kept_ack_set |
| who asks again, and is unblocked even if no entry comes back | 4.4 | gather._Gathering._add_turns |
| which entries come back, as far as dealing order and free hashes depend on it | 2.12, 2.41 | marks.Marks.leaving |

The plan must agree with the last one (``tests/differential/test_who_comes_back.py``). A cursor's state in memory finds
mark-delete, the last position before the first entry that is not acknowledged (3.17).

Pure rules of ``protocol`` decide control facts, which are few, on the driver: each has its number in ``semantics``
("ours" where Pulsar has no such rule), the place that applies it, and the rule that this place calls.

| control fact | semantics | decided in | by the rule |
|---|---|---|---|
| who may join a subscription | 2.1-2.3, 0.31 | subscribe_requests.SubscribeRequests._refusal | membership.refusal |
| which type is left after a consumer left | 2.1 | members.Members._leave | membership.type_of |
| who may end a subscription | 2.1 | members.Members.unsubscribe | membership.unsubscribe_refusal |
| cumulative acknowledgement | 2.5 | acknowledgements.Acknowledgements.check_cumulative | membership.allows_cumulative |
| who is active | 2.7-2.10 | members.Members._choose_active | failover.active_consumer |
| in which order consumers are served | 2.14, 0.28 | gather._Gathering._add_turns | shared.turns |
| when a new active consumer receives | 2.11 | members.Members._choose_active | failover.takeover_pause_ms |
| how long a silent client counts as connected | 2.2 | bundle.Bundle.renew_lease | membership.lease_end |
| which lease a consumer has after a restart | 2.2 | load_bundle._load_consumers | membership.lease_ms_of |
| which leases have ended | 2.2 | members.Members.end_leases | membership.ended_leases |
| where a subscription begins | 3.15 | request_handler.RequestHandler.new_cursor | cursor.initial_read_position |
| what a Key_Shared consumer asks for | 2.4, 2.29 | key_shared.newcomer_of | key_shared.key_shared_meta |
| which rules a Key_Shared subscription has | 2.4, 0.4, 0.11 | key_shared.newcomer_of | key_shared.rules_for |
| which rules it has after a restart | 2.4 | key_shared.restore | key_shared.kept_rules |
| who may join others of Key_Shared | 2.4 | key_shared.refusal_of | key_shared.meta_refusal |
| who owns which hashes as a consumer joins | 2.24-2.29 | key_shared.assign_hashes | key_shared.owners_with |
| who owns which hashes as one leaves | 2.24-2.29 | key_shared.release_hashes | key_shared.owners_without |
| who owns which hashes after a restart | 2.24-2.29 | key_shared.restore | kept_owners.kept_selector |
| which consumers are newcomers | 2.32, 2.35 | key_shared.assign_hashes | key_shared.join_position |
| which are newcomers no longer as others leave | 2.34 | key_shared.release_hashes | key_shared.still_recent |
| which newcomers have caught up | 2.34 | members.end_waits | draining.caught_up |
| which consumer an entry belongs to | 2.23, 2.31 | keyed.owners_of | hash_ranges.Owners |
| which hashes drain | 2.41, 0.22 | keyed.Keyed._what_waits | draining.DrainingHashes |
| how many waiting entries reading passes over | 2.39 | keyed.Keyed._look_ahead_limit | draining.look_ahead_limit |
| which chunked messages exceed the limit | 1.14 | chunk_walk.ChunkWalk._look | chunk_limits.evictions |
| which chunked messages took too long | 1.15 | chunk_walk.expire_incomplete | chunk_limits.begun_too_early |
| where a cursor is moved to | 3.26 | moves.Moves.seek | cursor.seek_position |
| which policy holds for a topic | ours | bundle.Bundle.policy_text | policies.policy_text |
| which values a policy takes | ours | policy_requests.PolicyRequests.set | policies.check_policy |
| who may read compacted | ours | subscribe_requests.SubscribeRequests.subscribe | compaction.reads_compacted_refusal |
| which topic a broker compacts by itself | ours | compaction_upkeep.CompactionUpkeep._look_at | compaction.is_wanted |
| which messages of a small topic stay | ours | compaction_small.write_small | compaction.survivors |
| since when messages are deduplicated | ours | policy_requests.PolicyRequests.set | policies.deduplication_marks |
| which messages expire | 3.29, 0.26 | maintenance._expire | expiry.expired |
| which subscriptions expiry spares | 3.29 | maintenance._expire | expiry.is_spared |
| how large a backlog is | 3.30 | maintenance._check_quota | expiry.backlog_bytes |
| what a quota evicts | 3.30 | maintenance._check_quota | expiry.evicted_up_to |
| whether a quota holds producers | 3.30 | maintenance._check_in_time | expiry.holds_producers |
| which subscription is idle for too long | 3.31 | maintenance._delete_idle | expiry.has_expired |
| which subscriptions the broker's limit blocks | 4.5 | unacked.limit_unacked | unacked_limit.BrokerLimit |
"""
