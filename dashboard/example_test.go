package dashboard_test

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/postgres"
)

// Serve the dashboard at /admin/posthaste/ of a program of your own.
func Example() {
	engine, err := postgres.Open(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()

	pages, err := dashboard.Handler(engine, dashboard.Config{Path: "/admin/posthaste", Environment: "production"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/admin/posthaste/", pages)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}
