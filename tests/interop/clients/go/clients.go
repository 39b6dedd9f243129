package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	sendTimeout = 10 * time.Second

	// The library sends a first heartbeat one second after a client's start, even when it has been shut down by
	// then: the broker takes the dead client for a living one. A consumer is not ended before.
	lifeMin = 2 * time.Second
)

// registry holds the running clients by name.
type registry struct {
	lock      sync.Mutex
	started   map[string]time.Time
	producers map[string]rocketmq.Producer
	consumers map[string]rocketmq.PushConsumer
	tunnel    *tunnel
}

func newRegistry() *registry {
	return &registry{
		started:   map[string]time.Time{},
		producers: map[string]rocketmq.Producer{},
		consumers: map[string]rocketmq.PushConsumer{},
	}
}

// nameServer is the address a client is given: the wanted one, or the near end of the tunnel to it.
func (r *registry) nameServer(address string) []string {
	if r.tunnel != nil {
		address = r.tunnel.near(address)
	}
	return []string{address}
}

// instance makes each client a client of its own: those of one instance name share connections and heartbeats.
func instance(name string) string {
	return fmt.Sprintf("%s@%d", name, os.Getpid())
}

// byArgument sends a message to the queue its line names, and spreads those that name none.
type byArgument struct {
	otherwise producer.QueueSelector
}

func (s byArgument) Select(message *primitive.Message, queues []*primitive.MessageQueue, lastBroker string) *primitive.MessageQueue {
	wanted, err := strconv.Atoi(message.GetProperty(wantedQueue))
	if err != nil {
		return s.otherwise.Select(message, queues, lastBroker)
	}
	message.RemoveProperty(wantedQueue)
	for _, queue := range queues {
		if queue.QueueId == wanted%len(queues) {
			return queue
		}
	}
	return nil
}

func (r *registry) startProducer(wanted *request) error {
	created, err := rocketmq.NewProducer(
		producer.WithGroupName(wanted.Group),
		producer.WithInstanceName(instance(wanted.Name)),
		producer.WithNameServer(r.nameServer(wanted.NameServer)),
		producer.WithVIPChannel(wanted.VIP),
		producer.WithSendMsgTimeout(sendTimeout),
		// A retried send would hide a refused one, and could store a message twice.
		producer.WithRetry(0),
		producer.WithQueueSelector(byArgument{producer.NewRoundRobinQueueSelector()}),
	)
	if err != nil {
		return err
	}
	if err := created.Start(); err != nil {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.started[wanted.Name] = time.Now()
	r.producers[wanted.Name] = created
	return nil
}

func (r *registry) send(wanted *request) (object, error) {
	r.lock.Lock()
	sender := r.producers[wanted.Producer]
	r.lock.Unlock()
	if sender == nil {
		return nil, fmt.Errorf("no producer %q", wanted.Producer)
	}
	messages := make([]*primitive.Message, len(wanted.Messages))
	for i, line := range wanted.Messages {
		messages[i] = line.message()
		if wanted.Mode == "selector" {
			messages[i].WithProperty(wantedQueue, strconv.Itoa(*line.QueueID))
		}
	}
	background := context.Background()
	results := []object{}
	switch wanted.Mode {
	case "sync", "selector":
		for _, message := range messages {
			sent, err := sender.SendSync(background, message)
			if err != nil {
				return nil, err
			}
			results = append(results, resultLine(sent))
		}
	case "batch":
		sent, err := sender.SendSync(background, messages...)
		if err != nil {
			return nil, err
		}
		results = append(results, resultLine(sent))
	case "oneway":
		for _, message := range messages {
			if err := sender.SendOneWay(background, message); err != nil {
				return nil, err
			}
		}
	case "async":
		return sendAsync(sender, messages)
	default:
		return nil, fmt.Errorf("no mode %q", wanted.Mode)
	}
	return object{"results": results}, nil
}

func sendAsync(sender rocketmq.Producer, messages []*primitive.Message) (object, error) {
	type outcome struct {
		index  int
		result *primitive.SendResult
		err    error
	}
	outcomes := make(chan outcome, len(messages))
	for i, message := range messages {
		index := i
		err := sender.SendAsync(context.Background(), func(_ context.Context, sent *primitive.SendResult, err error) {
			outcomes <- outcome{index, sent, err}
		}, message)
		if err != nil {
			return nil, err
		}
	}
	results := make([]object, len(messages))
	deadline := time.After(sendTimeout)
	for range messages {
		select {
		case one := <-outcomes:
			if one.err != nil {
				return nil, one.err
			}
			results[one.index] = resultLine(one.result)
		case <-deadline:
			return nil, fmt.Errorf("an asynchronous send was not answered within %s", sendTimeout)
		}
	}
	return object{"results": results}, nil
}

func resultLine(sent *primitive.SendResult) object {
	status := "SEND_OK"
	if sent.Status != primitive.SendOK {
		status = fmt.Sprintf("status %d", sent.Status)
	}
	return object{
		"status":      status,
		"msgId":       sent.MsgID,
		"offsetMsgId": sent.OffsetMsgID,
		"brokerName":  sent.MessageQueue.BrokerName,
		"queueId":     sent.MessageQueue.QueueId,
		"queueOffset": sent.QueueOffset,
	}
}

func (r *registry) startPush(wanted *request) error {
	created, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(wanted.Group),
		consumer.WithInstance(instance(wanted.Name)),
		consumer.WithNameServer(r.nameServer(wanted.NameServer)),
		consumer.WithVIPChannel(wanted.VIP),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: wanted.Expression}
	err = created.Subscribe(wanted.Topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lines := make([]object, len(messages))
			for i, message := range messages {
				lines[i] = receivedLine(message)
			}
			emit(object{"event": "received", "consumer": wanted.Name, "messages": lines})
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return err
	}
	if err := created.Start(); err != nil {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	r.started[wanted.Name] = time.Now()
	r.consumers[wanted.Name] = created
	return nil
}

func (r *registry) close(name string) error {
	r.lock.Lock()
	sender, receiver, started := r.producers[name], r.consumers[name], r.started[name]
	delete(r.started, name)
	delete(r.producers, name)
	delete(r.consumers, name)
	r.lock.Unlock()
	if sender != nil {
		return sender.Shutdown()
	}
	time.Sleep(time.Until(started.Add(lifeMin)))
	if receiver != nil {
		return receiver.Shutdown()
	}
	return nil
}

func (r *registry) closeAll() {
	r.lock.Lock()
	names := []string{}
	for name := range r.producers {
		names = append(names, name)
	}
	for name := range r.consumers {
		names = append(names, name)
	}
	r.lock.Unlock()
	for _, name := range names {
		if err := r.close(name); err != nil {
			fmt.Fprintf(os.Stderr, "interop-clients: closing %s: %v\n", name, err)
		}
	}
}
