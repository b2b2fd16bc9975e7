//go:build unix

package mainjob_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/test/internal/job"
)

func TestTheBrokerHoldsWhatIsProducedToAStoppedTopicAlone(t *testing.T) {
	b := startBroker(t, topics())
	b.stopProduce(outputTopic)
	held := make(chan error, 1)
	b.client.Produce(t.Context(), &kgo.Record{Topic: outputTopic, Value: []byte("held")}, func(_ *kgo.Record, err error) { held <- err })
	other, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
	must(t, err)
	defer other.Close()
	must(t, other.ProduceSync(t.Context(), &kgo.Record{Topic: errorTopic, Value: []byte("passes")}).FirstErr())
	if n := count(t, b, outputTopic); n != 0 {
		t.Errorf("the stopped topic holds %d records, want none", n)
	}
	b.resumeProduce(outputTopic)
	must(t, <-held)
	if records := readAll(t, b, outputTopic); len(records) != 1 || string(records[0].Value) != "held" {
		t.Errorf("the topic holds %v after it went on, want what was held", records)
	}
}

func TestTheAPIHangsForAKeyAlone(t *testing.T) {
	a := job.StartAPI(t, time.Millisecond)
	a.Hang(1)
	ctx, giveUp := context.WithCancel(t.Context())
	hung := make(chan error, 1)
	go func() { hung <- get(ctx, a, 1, 10) }()
	waitFor(t, "the call comes in", func() bool { return a.CallsByID()[10] == 1 })
	must(t, get(t.Context(), a, 2, 20))
	if got := a.AnswersByKey(); !maps.Equal(got, map[int]int{2: 1}) {
		t.Errorf("answered %v by key, want key 2 alone", got)
	}
	if rate := a.Rate(t, time.Millisecond); rate != 0 {
		t.Errorf("the rate of answers is %v while one call hangs, want 0", rate)
	}
	giveUp()
	if err := <-hung; !errors.Is(err, context.Canceled) {
		t.Errorf("the hanging call ended with %v, want that it was given up", err)
	}
}

func get(ctx context.Context, a *job.API, key, id int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/page/%d?id=%d", a.URL, key, id), nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func TestAWorkerServesMetricsAndEndsWhenAskedTo(t *testing.T) {
	b := startBroker(t, topics())
	a := job.StartAPI(t, time.Millisecond)
	w := startWorker(t, b, a, "workers=7")
	if n := w.Metrics().Value("enricher_workers", "pipeline=mainjob"); n != 7 {
		t.Errorf("enricher_workers is %v, want 7", n)
	}
	w.Terminate()
	if status, took := w.Wait(); status != 0 || took > 30*time.Second {
		t.Errorf("ended with status %d after %v, want 0 within 30s", status, took)
	}
	killed := startWorker(t, b, a)
	killed.Kill()
	if status, _ := killed.Wait(); status != -1 {
		t.Errorf("a killed worker ended with status %d, want -1", status)
	}
}
