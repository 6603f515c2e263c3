// Package podsecurity runs the API server tests of the Pod Security module.
package podsecurity

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"
	podsecurity "k8s.io/pod-security-admission/test"
)

// TestServer tests the API server at POD_SECURITY_SERVER, a URL without authentication.
func TestServer(t *testing.T) {
	config := &rest.Config{Host: os.Getenv("POD_SECURITY_SERVER"), QPS: -1}
	// The embedded server decodes only a part of protobuf.
	config.ContentType = "application/json"
	podsecurity.Run(t, podsecurity.Options{ClientConfig: config})
}
