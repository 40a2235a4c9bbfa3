package redis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// eraseMost is the maximum of messages per call of Erase.
const eraseMost = 1000

// Erase implements [posthaste.MessageAdmin]. The recorded actions have only the SHA-256 of the term.
func (e *Engine) Erase(ctx context.Context, term string, before posthaste.MessageID) (page posthaste.Page[posthaste.Erasure], err error) {
	if term == "" {
		return page, posthaste.Invalidf("term", "term must not be empty")
	}
	if err := (&posthaste.Message{Queue: "any", Terms: []string{term}}).Check(); err != nil {
		return page, err
	}
	// Messages whose retention has ended are not found any more, but may still be stored.
	all, err := e.registry.read(ctx)
	for more := true; more && err == nil; {
		more, err = e.expire(ctx, all)
	}
	if err != nil {
		return page, err
	}
	found, next, err := e.search(ctx, "", eraseMost, before, e.worded("", term),
		func(t *told) bool { return slices.Contains(t.Terms, term) })
	if err != nil {
		return page, err
	}
	if len(found) == eraseMost {
		next = found[eraseMost-1].ID
	}
	page.Next = next
	details := fmt.Appendf(nil, `{"term_sha256":"%x"}`, sha256.Sum256([]byte(term)))
	if len(found) == 0 && before == 0 {
		details = fmt.Appendf(nil, `{"term_sha256":"%x","found":0}`, sha256.Sum256([]byte(term)))
		return page, writeError(e.record(ctx, record{Action: "erase", Details: details}))
	}
	byQueue := map[string][]posthaste.MessageID{}
	for _, t := range found {
		byQueue[t.Queue] = append(byQueue[t.Queue], t.ID)
	}
	for name, ids := range byQueue {
		for some := range slices.Chunk(ids, buryMost) {
			answers, err := e.eraseIn(ctx, name, some)
			if err != nil {
				return page, err
			}
			var records []record
			for i, id := range some {
				switch answers[i] {
				case "pending":
					page.Items = append(page.Items, posthaste.Erasure{MessageID: id, Queue: name, Pending: true})
				case "erased":
					page.Items = append(page.Items, posthaste.Erasure{MessageID: id, Queue: name})
					records = append(records, record{Action: "erase", Queue: name, Message: id, Details: details})
				}
			}
			if err := e.record(ctx, records...); err != nil {
				return page, writeError(err)
			}
		}
	}
	slices.SortFunc(page.Items, func(a, b posthaste.Erasure) int { return cmp.Compare(b.MessageID, a.MessageID) })
	return page, nil
}

// eraseIn erases messages of one queue, and returns an answer for each. Their errors in charts go
// first: the messages are not found again after they were erased.
func (e *Engine) eraseIn(ctx context.Context, name string, ids []posthaste.MessageID) ([]any, error) {
	if err := e.eraseErrors(ctx, name, ids); err != nil {
		return nil, err
	}
	reply, _, err := e.tryQueue(ctx, name, func(q *queue) (any, error) {
		names := slices.Clone(q.keys)
		for _, s := range q.subs {
			names = append(names, e.keys.own(name, s.subscription, "st"), e.keys.own(name, s.subscription, "words"))
		}
		names = append(names, e.keys.unique(name))
		args := arguments{{"number", q.numberArg}, {"rules", q.rules}, {"letters", q.letters()}}
		for _, id := range ids {
			args = append(args, arg{is: place(int64(id))})
		}
		return eraseScript.run(ctx, e.client, names, args)
	})
	if err != nil {
		return nil, writeError(err)
	}
	return list("erase", reply, len(ids))
}
