FROM rust:1.91-bookworm AS build
WORKDIR /src
COPY . .
# Without the embedded cluster: the image holds the agent and its commands.
ENV LIBZ_SYS_STATIC=1
RUN cargo build --release --locked --no-default-features

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/mainstay /usr/local/bin/mainstay
ENTRYPOINT ["mainstay"]
