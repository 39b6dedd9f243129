/* END_TRANSACTION, natively: the first word on a half message of this start that was never put again. A commit is put
 * where the half was sent to, together with the other messages of the turn; a rollback is a note. Either is told to the
 * control loop, which writes the op messages: a kill in between leaves a committed message without one, which the next
 * start looks for. What repeats, contradicts or is wrong is handed over; pymq/broker/transaction has the whole. */
#include "again.h"
#include "transactions.h"

#define NAME(text) (text), sizeof(text) - 1

/* What belongs to the half and not to the message: as in pymq/broker/transaction/records.py. */
static const char REMOVED[] = "REAL_TOPIC\x02REAL_QID\x02TRAN_PREPARED_QUEUE_OFFSET\x02";

struct ending {
    struct pymq_slice group, transaction;
    int64_t queue_offset, physical_offset;
    int32_t how;
};

static bool read_ending(const struct pymq_command *command, struct ending *ending) {
    const struct pymq_slice *group = pymq_command_field(command, NAME("producerGroup"));
    const struct pymq_slice *transaction = pymq_command_field(command, NAME("transactionId"));
    if (group == NULL || pymq_command_field(command, NAME("msgId")) == NULL ||
        pymq_slice_int64(pymq_command_field(command, NAME("tranStateTableOffset")), &ending->queue_offset) != PYMQ_OK ||
        pymq_slice_int64(pymq_command_field(command, NAME("commitLogOffset")), &ending->physical_offset) != PYMQ_OK ||
        pymq_slice_int32(pymq_command_field(command, NAME("commitOrRollback")), &ending->how) != PYMQ_OK)
        return false;
    ending->group = *group;
    ending->transaction = transaction != NULL ? *transaction : (struct pymq_slice){NULL, 0};
    /* A rollback that is answered wants its op message in the log first. */
    return ending->how == PYMQ_SYS_TRANSACTION_COMMIT ||
           (ending->how == PYMQ_SYS_TRANSACTION_ROLLBACK && (command->flag & PYMQ_COMMAND_ONEWAY) != 0);
}

static bool is_same(const struct pymq_slice *text, const struct pymq_slice *other) {
    return text->size == other->size && (text->size == 0 || memcmp(text->data, other->data, text->size) == 0);
}

static bool is(const struct pymq_slice *name, const char *text, size_t size) {
    return name->size == size && memcmp(name->data, text, size) == 0;
}

/* What a half message says of itself. */
struct half {
    struct pymq_slice group, key, topic, queue_id;
    bool is_unusual; /* asked about or put again before, with a time of its own, or to be delayed */
};

static void read_half(const struct pymq_slice *properties, struct half *half) {
    struct pymq_property pair;
    size_t position = 0;
    memset(half, 0, sizeof *half);
    while (pymq_properties_next(properties->data, properties->size, &position, &pair)) {
        if (is(&pair.name, NAME("PGROUP")))
            half->group = pair.value;
        else if (is(&pair.name, NAME("UNIQ_KEY")))
            half->key = pair.value;
        else if (is(&pair.name, NAME("REAL_TOPIC")))
            half->topic = pair.value;
        else if (is(&pair.name, NAME("REAL_QID")))
            half->queue_id = pair.value;
        else if (is(&pair.name, NAME("DELAY")) || is(&pair.name, NAME("TRAN_PREPARED_QUEUE_OFFSET")) ||
                 is(&pair.name, NAME("CHECK_IMMUNITY_TIME_IN_SECONDS")) ||
                 (pair.name.size > 6 && memcmp(pair.name.data, "TIMER_", 6) == 0))
            half->is_unusual = true;
    }
}

/* Whether the request means this record, and nothing about it is special. */
static bool is_meant(const struct ending *ending, const struct pymq_record *record, const struct half *half) {
    return is(&record->topic, NAME(PYMQ_HALF_TOPIC)) && record->queue_id == 0 &&
           record->queue_offset == ending->queue_offset && !half->is_unusual && half->group.size > 0 &&
           is_same(&half->group, &ending->group) && half->topic.size > 0 &&
           (ending->transaction.size == 0 || is_same(&ending->transaction, &half->key));
}

static int commit(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                  const struct pymq_command *command, const struct ending *ending, const struct half *half,
                  const struct pymq_record *record) {
    struct pymq_again again = {
        .topic = pymq_topic_find(&state->serve->tables, half->topic.data, half->topic.size),
        .asked = PYMQ_ASKED_END,
        .half_offset = ending->queue_offset,
    };
    again.reput = (struct pymq_reput){
        .topic = half->topic,
        .remove = {(const uint8_t *)REMOVED, sizeof REMOVED - 1},
        .sys_flag_clear = PYMQ_SYS_TRANSACTION_MASK,
        .sys_flag_set = PYMQ_SYS_TRANSACTION_COMMIT,
        .reconsume_times = -1,
        .prepared_transaction_offset = ending->physical_offset,
    };
    if (again.topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN;
    if (pymq_slice_int32(&half->queue_id, &again.reput.queue_id) != PYMQ_OK || again.reput.queue_id < 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
    if (!pymq_transaction_claim_native(state->serve, ending->queue_offset, ending->physical_offset))
        return PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION;
    int outcome = pymq_again_collect(state, connection, command, &again, record);
    if (outcome != PYMQ_SERVED)
        pymq_transaction_unclaim_native(state->serve, ending->queue_offset);
    return outcome;
}

static int roll_back(struct pymq_serve_reactor *state, const struct ending *ending) {
    if (!pymq_transaction_claim_native(state->serve, ending->queue_offset, ending->physical_offset))
        return PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION;
    pymq_transaction_note(state->serve, ending->queue_offset, PYMQ_SYS_TRANSACTION_ROLLBACK);
    pymq_count(&state->counters.transactions, 1);
    return PYMQ_SERVED;
}

int pymq_end_transaction_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                                 const struct pymq_command *command) {
    struct ending ending;
    struct half half;
    struct pymq_span span;
    struct pymq_record record;
    if (!read_ending(command, &ending))
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    if (!state->serve->config.transactions)
        return PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION;
    int outcome = pymq_again_check(state);
    if (outcome == PYMQ_SERVED)
        outcome = pymq_again_read(state, ending.physical_offset, &span, &record);
    if (outcome != PYMQ_SERVED)
        return outcome;
    read_half(&record.properties, &half);
    if (!is_meant(&ending, &record, &half))
        outcome = PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
    else if (ending.how == PYMQ_SYS_TRANSACTION_COMMIT)
        outcome = commit(state, connection, command, &ending, &half, &record);
    else
        outcome = roll_back(state, &ending);
    pymq_span_release(state->serve->store, &span);
    return outcome;
}
