// Opens this address again, as a page of this server. Without the origin, a path such as //evil.example is another host.
"use strict";

location.replace(location.origin + location.pathname + location.search);
