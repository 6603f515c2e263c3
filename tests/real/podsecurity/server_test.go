// Package podsecurity judges the Pod Security of an API server by the tests that its own module has for one.
package podsecurity

import (
	"os"
	"testing"

	"k8s.io/client-go/rest"
	podsecurity "k8s.io/pod-security-admission/test"
)

// POD_SECURITY_SERVER is the URL of an API server without authentication.
func TestServer(t *testing.T) {
	config := &rest.Config{Host: os.Getenv("POD_SECURITY_SERVER"), QPS: -1}
	// The embedded server decodes only a part of protobuf.
	config.ContentType = "application/json"
	podsecurity.Run(t, podsecurity.Options{ClientConfig: config})
}
