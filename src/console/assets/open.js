// Opens this address again, as a page of this server.
"use strict";

location.replace(location.pathname + location.search);
