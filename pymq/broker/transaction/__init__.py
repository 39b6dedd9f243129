"""Transactional messages: half messages, their end, and asking producers about those whose end does not come.

A half message waits in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC. END_TRANSACTION commits it (put again where it was sent
to) or rolls it back; either way an op message in RMQ_SYS_TRANS_OP_HALF_TOPIC says later that it is done. A half
without an end is put again with its count of checks raised by one, and a producer of its group is asked.

    half.py     what a half message is, read from its record
    ledger.py   which half messages are pending: in memory, built again from both queues at a start
    ops.py      op messages, written in batches
    records.py  what is put into the log: committed, checked again, given up
    checks.py   the rounds that ask producers
    service.py  the whole, as a broker owns it
"""
