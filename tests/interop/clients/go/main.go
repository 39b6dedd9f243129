// Apache RocketMQ's Go client under remote control: many producers and push consumers in one process.
//
// The protocol is that of ClientTool.java: a request is a line {"id": n, "op": "...", ...}; its answer is
// {"id": n, ...} or {"id": n, "error": "..."}; what consumers receive comes between the answers, as lines
// {"event": "received", "consumer": name, "messages": [...]}. The ops are startProducer, send, startPush and close.
//
// Flags: -codec json|rocketmq chooses the header's serialization (codec.go); -tls-namesrv and -tls-broker make the
// client reach these two servers over TLS (tls.go).
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// object is one line of the protocol, either way.
type object map[string]interface{}

// request holds the fields of every op; each op reads its own.
type request struct {
	ID         int            `json:"id"`
	Op         string         `json:"op"`
	Name       string         `json:"name"`
	Group      string         `json:"group"`
	NameServer string         `json:"namesrv"`
	Topic      string         `json:"topic"`
	Expression string         `json:"expression"`
	Producer   string         `json:"producer"`
	Mode       string         `json:"mode"`
	Messages   []*messageLine `json:"messages"`
	VIP        bool           `json:"vip"`
}

// A line with a large batch of bodies in it is long.
const lineSizeMax = 64 << 20

var outputLock sync.Mutex

// emit writes one line; lines of different goroutines do not mix.
func emit(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	outputLock.Lock()
	defer outputLock.Unlock()
	if _, err := os.Stdout.Write(append(text, '\n')); err != nil {
		os.Exit(1)
	}
}

func serve(wanted *request, clients *registry) (object, error) {
	switch wanted.Op {
	case "startProducer":
		return object{}, clients.startProducer(wanted)
	case "send":
		return clients.send(wanted)
	case "startPush":
		return object{}, clients.startPush(wanted)
	case "close":
		return object{}, clients.close(wanted.Name)
	default:
		return nil, fmt.Errorf("the Go client has no op %q", wanted.Op)
	}
}

func main() {
	codec := flag.String("codec", "json", "serialization of headers: json or rocketmq")
	nameServerOverTLS := flag.String("tls-namesrv", "", "address of a name server to reach over TLS")
	brokerOverTLS := flag.String("tls-broker", "", "address of a broker to reach over TLS")
	flag.Parse()
	rlog.SetLogLevel("warn")
	if err := useCodec(*codec); err != nil {
		fmt.Fprintln(os.Stderr, "interop-clients:", err)
		os.Exit(2)
	}
	clients := newRegistry()
	if *nameServerOverTLS != "" {
		tunnel, err := openTunnel(*nameServerOverTLS, *brokerOverTLS)
		if err != nil {
			fmt.Fprintln(os.Stderr, "interop-clients:", err)
			os.Exit(1)
		}
		clients.tunnel = tunnel
	}

	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 64<<10), lineSizeMax)
	for lines.Scan() {
		wanted := new(request)
		if err := json.Unmarshal(lines.Bytes(), wanted); err != nil {
			fmt.Fprintln(os.Stderr, "interop-clients:", err)
			os.Exit(2)
		}
		go func() {
			answer, err := serve(wanted, clients)
			if err != nil {
				answer = object{"error": err.Error()}
			}
			answer["id"] = wanted.ID
			emit(answer)
		}()
	}
	clients.closeAll()
}
