/* See transactions.h. One bit for each half message from `floor` on, because offsets are dense: a million pending
 * transactions take 128 KiB. One lock, held for a few instructions by reactors, a little longer by the control loop. */
#include "transactions.h"

#include <stdlib.h>

#define WORD_BITS 64
#define WORDS_MIN 1024
#define ENDED_MIN 256

struct pymq_transactions {
    pthread_mutex_t lock;   /* a leaf */
    int64_t base;           /* offset of the first bit, a multiple of WORD_BITS; below `floor` everything has ended */
    int64_t floor;
    int64_t begin_offset;   /* of the log: what lies below is of an earlier start, and not for reactors */
    uint64_t *words;
    size_t word_count;
    struct pymq_transaction_end *ended; /* not taken yet, oldest first */
    size_t ended_first, ended_count, ended_room;
    size_t claimed;         /* by reactors, not noted or released yet: each has its place in `ended` */
};

struct pymq_transactions *pymq_transactions_make(void) {
    struct pymq_transactions *transactions = calloc(1, sizeof *transactions);
    if (transactions == NULL)
        return NULL;
    transactions->begin_offset = INT64_MAX;
    pthread_mutex_init(&transactions->lock, NULL);
    return transactions;
}

void pymq_transactions_free(struct pymq_transactions *transactions) {
    if (transactions == NULL)
        return;
    pthread_mutex_destroy(&transactions->lock);
    free(transactions->words);
    free(transactions->ended);
    free(transactions);
}

/* ---- bits; with the lock held ----------------------------------------------------------------------------------- */

static bool make_bit(struct pymq_transactions *transactions, int64_t queue_offset) {
    size_t word = (size_t)((queue_offset - transactions->base) / WORD_BITS);
    if (word < transactions->word_count)
        return true;
    size_t count = transactions->word_count < WORDS_MIN ? WORDS_MIN : transactions->word_count;
    while (count <= word)
        count *= 2;
    uint64_t *words = realloc(transactions->words, count * sizeof *words);
    if (words == NULL)
        return false;
    memset(words + transactions->word_count, 0, (count - transactions->word_count) * sizeof *words);
    transactions->words = words;
    transactions->word_count = count;
    return true;
}

static uint64_t *word_of(struct pymq_transactions *transactions, int64_t queue_offset, uint64_t *mask) {
    uint64_t at = (uint64_t)(queue_offset - transactions->base);
    *mask = UINT64_C(1) << (at % WORD_BITS);
    return &transactions->words[at / WORD_BITS];
}

static bool is_in_span(const struct pymq_transactions *transactions, int64_t queue_offset) {
    return queue_offset - transactions->base < PYMQ_TRANSACTION_SPAN_MAX;
}

/* Set the bit; false when it was set, or cannot be remembered. */
static bool claim(struct pymq_transactions *transactions, int64_t queue_offset) {
    uint64_t mask;
    if (queue_offset < transactions->floor || !make_bit(transactions, queue_offset))
        return false;
    uint64_t *word = word_of(transactions, queue_offset, &mask);
    if ((*word & mask) != 0)
        return false;
    *word |= mask;
    return true;
}

static void release(struct pymq_transactions *transactions, int64_t queue_offset) {
    uint64_t mask;
    if (queue_offset < transactions->base ||
        (uint64_t)(queue_offset - transactions->base) / WORD_BITS >= transactions->word_count)
        return;
    uint64_t *word = word_of(transactions, queue_offset, &mask);
    *word &= ~mask;
}

/* ---- for reactors ----------------------------------------------------------------------------------------------- */

static bool make_end(struct pymq_transactions *transactions) {
    size_t wanted = transactions->ended_count + transactions->claimed + 1;
    if (wanted > PYMQ_TRANSACTIONS_ENDED_MAX)
        return false;
    if (transactions->ended_first + wanted > transactions->ended_room && transactions->ended_first > 0) {
        memmove(transactions->ended, transactions->ended + transactions->ended_first,
                transactions->ended_count * sizeof *transactions->ended);
        transactions->ended_first = 0;
    }
    if (transactions->ended_first + wanted <= transactions->ended_room)
        return true;
    size_t room = transactions->ended_room < ENDED_MIN ? ENDED_MIN : 2 * transactions->ended_room;
    struct pymq_transaction_end *ended = realloc(transactions->ended, room * sizeof *ended);
    if (ended == NULL)
        return false;
    transactions->ended = ended;
    transactions->ended_room = room;
    return true;
}

bool pymq_transaction_claim_native(struct pymq_serve *serve, int64_t queue_offset, int64_t physical_offset) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    bool claimed = physical_offset >= transactions->begin_offset && is_in_span(transactions, queue_offset) &&
                   make_end(transactions) && claim(transactions, queue_offset);
    if (claimed)
        transactions->claimed++;
    pthread_mutex_unlock(&transactions->lock);
    return claimed;
}

void pymq_transaction_note(struct pymq_serve *serve, int64_t queue_offset, int32_t how) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    transactions->claimed--;
    transactions->ended[transactions->ended_first + transactions->ended_count++] =
        (struct pymq_transaction_end){queue_offset, how};
    pthread_mutex_unlock(&transactions->lock);
}

void pymq_transaction_unclaim_native(struct pymq_serve *serve, int64_t queue_offset) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    transactions->claimed--;
    release(transactions, queue_offset);
    pthread_mutex_unlock(&transactions->lock);
}

/* ---- for the control loop --------------------------------------------------------------------------------------- */

static void forget(struct pymq_transactions *transactions, int64_t floor) {
    if (floor <= transactions->floor)
        return;
    transactions->floor = floor;
    int64_t words = (floor - transactions->base) / WORD_BITS;
    size_t gone = words < (int64_t)transactions->word_count ? (size_t)words : transactions->word_count;
    if (gone > 0) {
        size_t kept = transactions->word_count - gone;
        memmove(transactions->words, transactions->words + gone, kept * sizeof *transactions->words);
        memset(transactions->words + kept, 0, gone * sizeof *transactions->words);
    }
    transactions->base += words * WORD_BITS;
}

void pymq_serve_transactions_begin(struct pymq_serve *serve, int64_t floor, int64_t begin_offset) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    forget(transactions, floor);
    transactions->begin_offset = begin_offset;
    pthread_mutex_unlock(&transactions->lock);
}

bool pymq_serve_transaction_claim(struct pymq_serve *serve, int64_t queue_offset) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    bool claimed = queue_offset >= transactions->floor;
    if (claimed && is_in_span(transactions, queue_offset) && make_bit(transactions, queue_offset))
        claimed = claim(transactions, queue_offset);
    else if (claimed) /* it cannot be remembered: from now on only the control loop ends anything */
        transactions->begin_offset = INT64_MAX;
    pthread_mutex_unlock(&transactions->lock);
    return claimed;
}

void pymq_serve_transaction_release(struct pymq_serve *serve, int64_t queue_offset) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    release(transactions, queue_offset);
    pthread_mutex_unlock(&transactions->lock);
}

size_t pymq_serve_transactions_ended(struct pymq_serve *serve, struct pymq_transaction_end *ends, size_t count_max) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    size_t count = transactions->ended_count < count_max ? transactions->ended_count : count_max;
    if (count > 0) {
        memcpy(ends, transactions->ended + transactions->ended_first, count * sizeof *ends);
        transactions->ended_count -= count;
        transactions->ended_first = transactions->ended_count > 0 ? transactions->ended_first + count : 0;
    }
    pthread_mutex_unlock(&transactions->lock);
    return count;
}

void pymq_serve_transactions_forget(struct pymq_serve *serve, int64_t floor) {
    struct pymq_transactions *transactions = serve->transactions;
    pthread_mutex_lock(&transactions->lock);
    forget(transactions, floor);
    pthread_mutex_unlock(&transactions->lock);
}
