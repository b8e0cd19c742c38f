// One send and consume round with RocketMQ's Go client: goclient NAMESRV TOPIC GROUP COUNT.
//
// Sends COUNT messages one by one and as many in one batch, consumes all of them with a push consumer and prints one JSON object:
// {"sent": [...], "received": [...]}. Ends with 1 when they do not all come within 60 seconds. Requests are signed with the keys
// in ACCESS_KEY and SECRET_KEY, if they are set.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type place struct {
	Body        string `json:"body"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
	Tags        string `json:"tags"`
	Keys        string `json:"keys"`
}

func main() {
	rlog.SetLogLevel("error")
	namesrv, topic, group := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	check(err)

	sent := send(namesrv, topic, count)
	received := consume(namesrv, topic, group, len(sent))

	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"sent": sent, "received": received}))
	if len(received) < len(sent) {
		os.Exit(1)
	}
	// The client's own shutdown waits for its long polls.
	os.Exit(0)
}

func credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
}

func send(namesrv, topic string, count int) []place {
	options := []producer.Option{producer.WithNameServer([]string{namesrv}), producer.WithRetry(2)}
	if keys := credentials(); keys.AccessKey != "" {
		options = append(options, producer.WithCredentials(keys))
	}
	p, err := rocketmq.NewProducer(options...)
	check(err)
	check(p.Start())
	var sent []place
	for i := 0; i < count; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("go-%d", i))).WithTag("TagGo").WithKeys([]string{fmt.Sprintf("k%d", i)})
		result, err := p.SendSync(context.Background(), message)
		check(err)
		sent = append(sent, place{Body: string(message.Body), QueueID: result.MessageQueue.QueueId, QueueOffset: result.QueueOffset})
	}
	var batch []*primitive.Message
	for i := 0; i < count; i++ {
		batch = append(batch, primitive.NewMessage(topic, []byte(fmt.Sprintf("go-batch-%d", i))).WithTag("TagGo"))
	}
	result, err := p.SendSync(context.Background(), batch...)
	check(err)
	for i, message := range batch {
		sent = append(sent, place{Body: string(message.Body), QueueID: result.MessageQueue.QueueId, QueueOffset: result.QueueOffset + int64(i)})
	}
	check(p.Shutdown())
	return sent
}

func consume(namesrv, topic, group string, count int) []place {
	options := []consumer.Option{
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	if keys := credentials(); keys.AccessKey != "" {
		options = append(options, consumer.WithCredentials(keys))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	check(err)
	var lock sync.Mutex
	var received []place
	complete := make(chan struct{})
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, one := range messages {
			received = append(received, place{string(one.Body), one.Queue.QueueId, one.QueueOffset, one.GetTags(), one.GetKeys()})
		}
		if len(received) == count {
			close(complete)
		}
		return consumer.ConsumeSuccess, nil
	}
	check(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "TagGo"}, handle))
	check(c.Start())
	select {
	case <-complete:
	case <-time.After(60 * time.Second):
	}
	lock.Lock()
	defer lock.Unlock()
	return append([]place(nil), received...)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
