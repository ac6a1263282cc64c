// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package process

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// AddressIndex finds pods by their address in the shared informer.
	AddressIndex = "address"
	// dialPatience is how long a connection waits for a program that is being started.
	dialPatience = 5 * time.Second
)

// Indexers are what the pod informer must have.
func Indexers() cache.Indexers {
	return cache.Indexers{AddressIndex: func(object any) ([]string, error) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Status.PodIP != "" && !pod.Spec.HostNetwork {
			return []string{pod.Status.PodIP}, nil
		}
		return nil, nil
	}}
}

// Egress is the network between the API server and pods: the proxy that the API server connects to webhooks and
// aggregated APIs through. It leads connections to a pod's address to the pod's process.
type Egress struct {
	log     *slog.Logger
	runtime *Runtime
	pods    cache.Indexer
}

// NewEgress makes the proxy.
func NewEgress(log *slog.Logger, runtime *Runtime, pods cache.Indexer) *Egress {
	return &Egress{log: log, runtime: runtime, pods: pods}
}

// Serve works on that socket until the context ends.
func (e *Egress) Serve(ctx context.Context, socket string) error {
	_ = os.Remove(socket) // of an earlier start
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (e *Egress) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect {
		http.Error(writer, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	far, err := e.dial(request.Context(), request.Host)
	if err != nil {
		e.log.Warn("no connection", "to", request.Host, "error", err)
		http.Error(writer, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := writer.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	over := make(chan struct{}, 2)
	join := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		over <- struct{}{}
	}
	go join(far, buffered)
	go join(near, far)
	<-over
}

// dial connects to the process behind a pod's address, or to any other address itself.
func (e *Egress) dial(ctx context.Context, to string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	own := false
	if pods, err := e.pods.ByIndex(AddressIndex, host); err == nil {
		for _, object := range pods {
			if address := e.runtime.Address(object.(*corev1.Pod)); address != "" {
				host, own = address, true
			}
		}
	}
	dialer := net.Dialer{Timeout: dialPatience}
	for deadline := time.Now().Add(dialPatience); ; {
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil || !own || time.Now().After(deadline) {
			return connection, err
		}
		if err := pause(ctx, probeInterval); err != nil {
			return nil, err
		}
	}
}
