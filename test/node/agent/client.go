// SPDX-FileCopyrightText: The Evented PLEG Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/evented-pleg/evented-pleg/internal/bench"
)

// A Client asks an agent over HTTP. It may be used from any goroutine.
type Client struct {
	// Address is the agent's host and port.
	Address string
	// HTTP is the client to use; nil: http.DefaultClient.
	HTTP *http.Client
}

// Cache returns what the agent's cache holds.
func (c *Client) Cache(ctx context.Context) (pods []bench.Pod, err error) {
	return pods, c.get(ctx, PathCache, nil, &pods)
}

// Events returns the events with a sequence number above since.
func (c *Client) Events(ctx context.Context, since int) (events []Event, err error) {
	return events, c.get(ctx, PathEvents, url.Values{"since": {strconv.Itoa(since)}}, &events)
}

// Stats returns what the agent knows of itself.
func (c *Client) Stats(ctx context.Context) (stats Stats, err error) {
	return stats, c.get(ctx, PathStats, nil, &stats)
}

// Violations returns what the agent saw that must never happen.
func (c *Client) Violations(ctx context.Context) (violations []string, err error) {
	return violations, c.get(ctx, PathViolations, nil, &violations)
}

// Newer asks the agent's cache for a status newer than the present moment.
func (c *Client) Newer(ctx context.Context, uid string) (newer Newer, err error) {
	return newer, c.get(ctx, PathNewer, url.Values{"pod": {uid}}, &newer)
}

// Health returns nil if the generator says that it is healthy.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, PathHealth, nil)
	return err
}

// Metrics returns the Prometheus metrics as [bench.Scrape] does.
func (c *Client) Metrics(ctx context.Context) (map[string]float64, error) {
	text, err := c.do(ctx, http.MethodGet, PathMetrics, nil)
	if err != nil {
		return nil, err
	}
	return bench.Scrape(text), nil
}

// StepClock sets the agent's wall clock to the real one plus the step.
func (c *Client) StepClock(ctx context.Context, step time.Duration) error {
	_, err := c.do(ctx, http.MethodPost, PathClock, url.Values{"step": {step.String()}})
	return err
}

// Consume stops or resumes the agent's reading of Watch.
func (c *Client) Consume(ctx context.Context, read bool) error {
	_, err := c.do(ctx, http.MethodPost, PathConsumer, url.Values{"read": {strconv.FormatBool(read)}})
	return err
}

// ResetWorkers forgets what the pod workers measured.
func (c *Client) ResetWorkers(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, PathWorkers, nil)
	return err
}

func (c *Client) get(ctx context.Context, path string, query url.Values, into any) error {
	body, err := c.do(ctx, http.MethodGet, path, query)
	if err != nil {
		return err
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(into); err != nil {
		return fmt.Errorf("agent: read the answer of %s: %w", path, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	address := url.URL{Scheme: "http", Host: c.Address, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
	if err != nil {
		return nil, err
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("agent: %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("agent: %s: %s: %s", path, response.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}
