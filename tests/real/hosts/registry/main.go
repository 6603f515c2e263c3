// registry serves an image registry in memory, with referrers, at an address.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: registry ADDRESS")
	}
	handler := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	server := &http.Server{Addr: os.Args[1], Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
