"""The settings of timed messages; `BrokerConfig` inherits them."""

from __future__ import annotations

from dataclasses import dataclass

from pymq.store.config import INT32_MAX
from pymq.store.settings import setting

PRECISIONS_MS = (100, 200, 500, 1000)
DAY_S = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class TimerSettings:
    """How timed messages (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS) are kept, delivered and recalled."""

    timer_wheel_enable: bool = setting(
        True,
        "Whether messages may carry a delivery time. Otherwise such a send is refused, and pending timers stay where "
        "they are until a start with it on; retention does not wait for them meanwhile.",
        alias="timerWheelEnable",
    )
    timer_precision_ms: int = setting(
        1000,
        "How exact delivery times are: a message comes at most so much after its time, never before it. 100, 200, 500 "
        "or 1000; what lies between is taken for the one below. It cannot be changed while timers are pending.",
        alias="timerPrecisionMs",
        unit="ms",
        low=1,
        high=INT32_MAX,
    )
    timer_roll_window_slot: int = setting(
        2 * DAY_S,
        "How far ahead the wheel is used, in slots of timerPrecisionMs. A message due later is put into the log again "
        "(rolled) each time it is passed; more saves copies, and keeps log files longer.",
        alias="timerRollWindowSlot",
        unit="slots",
        low=0,
        high=INT32_MAX,
    )
    timer_max_delay_sec: int = setting(
        3 * DAY_S,
        "The longest delay a message may ask for; a longer one is refused. Log files with pending timers are kept, so "
        "a higher limit needs more disk.",
        alias="timerMaxDelaySec",
        unit="s",
        low=1,
        high=INT32_MAX,
    )
    timer_congest_num_each_slot: int = setting(
        INT32_MAX,
        "Timers one slot takes freely; from there on sends into it are refused more and more often, at twice as many "
        "always.",
        alias="timerCongestNumEachSlot",
        unit="messages",
        low=1,
        high=INT32_MAX,
    )
    timer_flush_interval_ms: int = setting(
        1000,
        "How often wheel, log and checkpoint of the timers are brought to disk. Nothing is lost with them: what "
        "follows the checkpoint is read from the timer topic again, and delivered again.",
        alias="timerFlushIntervalMs",
        unit="ms",
        low=10,
        high=INT32_MAX,
    )
    mapped_file_size_timer_log: int = setting(
        100 * 1024 * 1024,
        "Size of one file of the timer log, 52 bytes a timer. A store must be opened with the size it was made with.",
        alias="mappedFileSizeTimerLog",
        unit="bytes",
        low=120,
        high=INT32_MAX,
    )
    timer_stop_enqueue: bool = setting(
        False, "Whether new timers wait in the timer topic instead of entering the wheel.", alias="timerStopEnqueue"
    )
    timer_stop_dequeue: bool = setting(
        False, "Whether due timers wait instead of being delivered.", alias="timerStopDequeue"
    )
    append_topic_for_timer_delete_key: bool = setting(
        False,
        "Whether a recall names topic and message instead of the message alone; for clients whose ids are not unique.",
        alias="appendTopicForTimerDeleteKey",
    )
    recall_message_enable: bool = setting(
        False, "Whether clients may recall a timed message before it is due.", alias="recallMessageEnable"
    )
    allow_recall_when_broker_not_writeable: bool = setting(
        True,
        "Whether they may while brokerPermission forbids sends.",
        alias="allowRecallWhenBrokerNotWriteable",
    )

    @property
    def timer_precision(self) -> int:
        """The precision in force, in ms: one of those Apache has."""
        return max((one for one in PRECISIONS_MS if one <= self.timer_precision_ms), default=PRECISIONS_MS[0])
