package main

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// messageLine is a message to send, as the protocol writes it; encoding/json reads the body's base64.
type messageLine struct {
	Topic      string            `json:"topic"`
	Tag        string            `json:"tag"`
	Key        string            `json:"key"`
	Body       []byte            `json:"bodyBase64"`
	Properties map[string]string `json:"properties"`
	QueueID    *int              `json:"queueId"`
}

// wantedQueue carries messageLine.QueueID to the selector, which is handed nothing but the message.
const wantedQueue = "interopQueue"

func (line *messageLine) message() *primitive.Message {
	message := primitive.NewMessage(line.Topic, line.Body)
	message.WithKeys([]string{line.Key})
	if line.Tag != "" {
		message.WithTag(line.Tag)
	}
	for name, value := range line.Properties {
		message.WithProperty(name, value)
	}
	return message
}

func receivedLine(message *primitive.MessageExt) object {
	digest := sha256.Sum256(message.Body)
	return object{
		"topic":          message.Topic,
		"queueId":        message.Queue.QueueId,
		"queueOffset":    message.QueueOffset,
		"msgId":          message.MsgId,
		"offsetMsgId":    message.OffsetMsgId,
		"key":            message.GetKeys(),
		"tag":            message.GetTags(),
		"properties":     message.GetProperties(),
		"digest":         hex.EncodeToString(digest[:]),
		"bodySize":       len(message.Body),
		"storeSize":      message.StoreSize,
		"reconsumeTimes": message.ReconsumeTimes,
	}
}
