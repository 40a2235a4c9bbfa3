package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
)

// flushPatience bounds how long a program that ends waits for the receiver of
// its last spans.
const flushPatience = 5 * time.Second

// traced reads OpenTelemetry's own variables: whether spans are to be sent.
// They are sent only where somebody said where to, by OTLP over HTTP.
func traced() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		return false, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "OTEL_TRACES_EXPORTER",
			Message: fmt.Sprintf("OTEL_TRACES_EXPORTER=%s is not supported: traces are sent by otlp, or not at all (none)", exporter)}
	}
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" && exporter == "" {
		return false, nil
	}
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol {
	case "", "http/protobuf":
	default:
		return false, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "OTEL_EXPORTER_OTLP_PROTOCOL",
			Message: fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL=%s is not supported: traces are sent by http/protobuf", protocol),
			Hint:    "leave it out, and name the port that takes OTLP over HTTP, as a rule 4318"}
	}
	return true, nil
}

// openTracing returns what follows messages, nil unless OpenTelemetry's
// variables ask for it. stop sends what is left.
func (a *app) openTracing(ctx context.Context) (follows posthaste.Tracing, stop func(), err error) {
	on, err := traced()
	if err != nil {
		return nil, nil, misuse(err)
	}
	if !on {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, misuse(posthaste.Invalidf("OTEL_EXPORTER_OTLP_ENDPOINT", "traces cannot be sent as OpenTelemetry's variables say: %v", err))
	}
	// What the variables say stands last, and wins.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "posthaste"), attribute.String("service.version", version())), resource.WithFromEnv())
	if err != nil {
		a.log.Warn("OTEL_RESOURCE_ATTRIBUTES can be read in parts only", "error", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { a.log.Warn("traces could not be sent", "error", err) }))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return tracing.New(provider), func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			a.log.Warn("the last traces could not be sent", "error", err)
		}
	}, nil
}
