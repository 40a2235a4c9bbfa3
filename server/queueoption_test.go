package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/posthaste-mq/posthaste"
)

// The description of the API has the options, bounds and defaults of the table in Go.
func TestQueueOptionsAreDescribed(t *testing.T) {
	t.Parallel()
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	schema := func(name string) *openapi3.Schema { return doc.Components.Schemas[name].Value }
	property := func(s *openapi3.Schema, name string) *openapi3.Schema {
		for part := range strings.SplitSeq(name, ".") {
			ref := s.Properties[part]
			if ref == nil {
				return nil
			}
			s = ref.Value
		}
		return s
	}
	named := map[string]bool{}
	for _, option := range posthaste.QueueOptionTable() {
		parent, _, _ := strings.Cut(option.Name, ".")
		named[parent] = true
		for where, s := range map[string]*openapi3.Schema{"NewQueueOptions": schema("NewQueueOptions"), "Queue": schema("Queue").Properties["options"].Value, "QueueUpdate": schema("QueueUpdate")} {
			p := property(s, option.Name)
			if wanted := where != "QueueUpdate" || option.Fixed == ""; (p != nil) != wanted {
				t.Errorf("%s: %s is described: %v, want %v", where, option.Name, p != nil, wanted)
			}
		}
		p := property(schema("NewQueueOptions"), option.Name)
		if p == nil {
			continue
		}
		switch option.Field(&posthaste.QueueOptions{}).(type) {
		case *int:
			if p.Min == nil || p.Max == nil || *p.Min != float64(option.Min) || *p.Max != float64(option.Max) {
				t.Errorf("%s has other bounds than %d and %d", option.Name, option.Min, option.Max)
			}
			if want := fmt.Sprintf("Default %v.", option.Default); option.Default != nil && !strings.Contains(p.Description, want) {
				t.Errorf("%s is described as %q, want %q", option.Name, p.Description, want)
			}
		case *posthaste.Mode, *bool:
			var values []string
			for _, value := range p.Enum {
				values = append(values, fmt.Sprint(value))
			}
			if !slices.Equal(values, option.Values) {
				t.Errorf("%s may be %q, want %q", option.Name, values, option.Values)
			}
		case *time.Duration:
			if days := fmt.Sprintf("%d days", time.Duration(option.Max)/(24*time.Hour)); !strings.Contains(p.Description+schema("NewQueueOptions").Properties[parent].Value.Description, days) {
				t.Errorf("%s does not say that it is at most %s", option.Name, days)
			}
		}
	}
	for name := range schema("NewQueueOptions").Properties {
		if !named[name] {
			t.Errorf("%s is described, and no option", name)
		}
	}
}
