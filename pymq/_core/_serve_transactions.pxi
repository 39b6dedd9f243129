# Transactions that end natively: whoever ends or moves a half message claims it first, the reactors and Python alike.

cdef enum:
    ENDED_AT_ONCE = 1024


cdef class _ServeTransactions(_ServeReput):
    """Half messages are named by their offsets in the half queue."""

    def transactions_begin(self, int64_t floor, int64_t begin_offset):
        """From now on END_TRANSACTION is served natively for half messages at or behind *begin_offset* of the log; those
        below *floor* of the half queue have ended."""
        cdef pymq_serve *serve = self.begin()
        try:
            pymq_serve_transactions_begin(serve, floor, begin_offset)
        finally:
            self.end()

    def transaction_claim(self, int64_t queue_offset):
        """Whether the caller may end it or put it again: it has not ended, and nobody has claimed it before."""
        cdef pymq_serve *serve = self.begin()
        try:
            return bool(pymq_serve_transaction_claim(serve, queue_offset))
        finally:
            self.end()

    def transaction_release(self, int64_t queue_offset):
        """Nothing came of a claim of the caller's."""
        cdef pymq_serve *serve = self.begin()
        try:
            pymq_serve_transaction_release(serve, queue_offset)
        finally:
            self.end()

    def transactions_ended(self):
        """What has ended natively since the last call, as (queue offset, flag of commit or rollback); a commit is in the
        log by then."""
        cdef pymq_transaction_end ends[ENDED_AT_ONCE]
        cdef size_t count = ENDED_AT_ONCE, index
        cdef list found = []
        cdef pymq_serve *serve = self.begin()
        try:
            while count == ENDED_AT_ONCE:
                count = pymq_serve_transactions_ended(serve, ends, ENDED_AT_ONCE)
                for index in range(count):
                    found.append((ends[index].queue_offset, ends[index].how))
            return found
        finally:
            self.end()

    def transactions_forget(self, int64_t floor):
        """Everything below *floor* has ended and need not be remembered."""
        cdef pymq_serve *serve = self.begin()
        try:
            pymq_serve_transactions_forget(serve, floor)
        finally:
            self.end()
