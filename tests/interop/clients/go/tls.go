package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// The released library (v2.1.2) dials plain TCP only. Its unreleased TLS option is crypto/tls around the same
// connection; a tunnel does that here, from outside: it listens on nearHost, at the ports of the two servers, and
// forwards to them over TLS. The client learns its broker's address from routes, so the tunnel puts its own host
// into the answers of the name server: the two hosts are of one length, hence no length in a frame changes.
const (
	farHost  = "127.0.0.1"
	nearHost = "127.0.0.2"

	frameSizeMax = 16 << 20
)

type tunnel struct {
	farBroker  []byte
	nearBroker []byte
}

// openTunnel starts to forward to both servers; it ends with the process.
func openTunnel(nameServer, broker string) (*tunnel, error) {
	opened := &tunnel{farBroker: []byte(broker)}
	opened.nearBroker = []byte(opened.near(broker))
	for _, far := range []string{nameServer, broker} {
		listener, err := net.Listen("tcp", opened.near(far))
		if err != nil {
			return nil, err
		}
		go opened.accept(listener, far)
	}
	return opened, nil
}

func (t *tunnel) near(address string) string {
	return strings.Replace(address, farHost+":", nearHost+":", 1)
}

func (t *tunnel) accept(listener net.Listener, far string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := tls.Dial("tcp", far, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			fmt.Fprintf(os.Stderr, "interop-clients: TLS to %s: %v\n", far, err)
			client.Close()
			continue
		}
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.CloseWrite()
		}()
		go func() {
			err := t.forwardFrames(client, server)
			if err != io.EOF {
				fmt.Fprintf(os.Stderr, "interop-clients: from %s: %v\n", far, err)
			}
			client.Close()
			server.Close()
		}()
	}
}

// forwardFrames copies whole frames, so that an address is never cut in two by a read.
func (t *tunnel) forwardFrames(client io.Writer, server io.Reader) error {
	for {
		var size uint32
		if err := binary.Read(server, binary.BigEndian, &size); err != nil {
			return err
		}
		if size > frameSizeMax {
			return fmt.Errorf("a frame of %d bytes", size)
		}
		frame := make([]byte, 4+size)
		binary.BigEndian.PutUint32(frame, size)
		if _, err := io.ReadFull(server, frame[4:]); err != nil {
			return err
		}
		if _, err := client.Write(bytes.ReplaceAll(frame, t.farBroker, t.nearBroker)); err != nil {
			return err
		}
	}
}
