package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// tasks are the components that run until the cluster ends. An earlier end is an error.
type tasks struct {
	ctx    context.Context
	failed chan error
	group  sync.WaitGroup
}

func newTasks(ctx context.Context) *tasks {
	return &tasks{ctx: ctx, failed: make(chan error, 1)}
}

// start runs a component.
func (t *tasks) start(name string, body func(context.Context) error) {
	t.group.Go(func() {
		err := body(t.ctx)
		if t.ctx.Err() != nil {
			return
		}
		select {
		case t.failed <- fmt.Errorf("%s has ended: %w", name, orEnded(err)):
		default:
		}
	})
}

func orEnded(err error) error {
	if err == nil {
		return fmt.Errorf("without an error")
	}
	return err
}

// wait waits until all components have ended, up to a deadline.
func (t *tasks) wait(atMost time.Duration) {
	ended := make(chan struct{})
	go func() {
		t.group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(atMost):
	}
}
