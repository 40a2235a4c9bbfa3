package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
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

// flushTimeout bounds the export of the last spans when the program ends.
const flushTimeout = 5 * time.Second

// traced reports whether the variables of OpenTelemetry enable the export of spans. That
// requires an endpoint or an exporter; the only protocol is OTLP over HTTP.
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
			Message: fmt.Sprintf("OTEL_TRACES_EXPORTER=%s is not supported; expected otlp or none", exporter)}
	}
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" && exporter == "" {
		return false, nil
	}
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol {
	case "", "http/protobuf":
	default:
		return false, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "OTEL_EXPORTER_OTLP_PROTOCOL",
			Message: fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL=%s is not supported; expected http/protobuf", protocol),
			Hint:    "omit it, and use the port of OTLP over HTTP, usually 4318"}
	}
	return true, nil
}

// openTracing returns the tracing of messages, nil unless the variables of OpenTelemetry
// enable it. stop exports the remaining spans.
func openTracing(ctx context.Context, log *slog.Logger) (follows posthaste.Tracing, stop func(), err error) {
	on, err := traced()
	if err != nil {
		return nil, nil, misuse(err)
	}
	if !on {
		return nil, func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, misuse(posthaste.Invalidf("OTEL_EXPORTER_OTLP_ENDPOINT", "invalid configuration of OpenTelemetry: %v", err))
	}
	// The variables come last and override the defaults.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "posthaste"), attribute.String("service.version", version())), resource.WithFromEnv())
	if err != nil {
		log.Warn("OTEL_RESOURCE_ATTRIBUTES is partly invalid", "error", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("export of traces failed", "error", err) }))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	return tracing.New(provider), func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("export of the last traces failed", "error", err)
		}
	}, nil
}
