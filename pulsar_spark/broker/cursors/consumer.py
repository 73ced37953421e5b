"""A consumer that is connected to a subscription."""

from dataclasses import dataclass, field


@dataclass
class Consumer:
    consumer_id: str
    name: str
    client_id: str
    priority_level: int = 0
    join_order: int = 0
    permits: int = 0
    is_blocked: bool = False
    msg_out_counter: int = 0
    msg_redeliver_counter: int = 0
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def has_unacked_limits(self) -> bool:
        return self.properties.get("max_unacked_messages") != "0"
