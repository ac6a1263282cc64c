// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package loop runs work queues.
package loop

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// Queue is a work queue with delays.
type Queue = workqueue.TypedRateLimitingInterface[string]

// NewQueue makes a queue whose failed keys come back after base, doubled up to ceiling.
func NewQueue(base, ceiling time.Duration) Queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](base, ceiling))
}

// Run works the queue off until the context ends.
func Run(ctx context.Context, log *slog.Logger, queue Queue, workers int, work func(context.Context, string) error) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for next(ctx, log, queue, work) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	group.Wait()
}

func next(ctx context.Context, log *slog.Logger, queue Queue, work func(context.Context, string) error) bool {
	key, quit := queue.Get()
	if quit {
		return false
	}
	defer queue.Done(key)
	err := work(ctx, key)
	if err == nil {
		queue.Forget(key)
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	// Another client wrote the object first; the informer will deliver that version.
	if apierrors.IsConflict(err) {
		log.Debug("try again", "key", key, "error", err)
	} else {
		log.Warn("try again", "key", key, "error", err)
	}
	queue.AddRateLimited(key)
	return true
}
