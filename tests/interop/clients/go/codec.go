package main

import (
	"fmt"
	_ "unsafe" // for go:linkname
)

// The library reads and writes both header serializations but has no setting for the one it writes: a variable of
// an internal package, JSON when nobody touches it. Linking to that variable leaves the library itself unmodified.
//
//go:linkname codecType github.com/apache/rocketmq-client-go/v2/internal/remote.codecType
var codecType byte

// useCodec chooses the serialization of every header written from now on.
func useCodec(name string) error {
	switch name {
	case "json":
		codecType = 0
	case "rocketmq":
		codecType = 1
	default:
		return fmt.Errorf("no codec %q: json or rocketmq", name)
	}
	return nil
}
