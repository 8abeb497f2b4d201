# asof in a container: one static program, no shell, no root.
#
#   docker build -t asof .
#   docker run --rm -p 127.0.0.1:8080:8080 -v asof:/data -e ASOF_INSECURE_NO_AUTH=true asof
#
# The store is in the volume "asof". To have it in a directory of the machine
# instead (-v /srv/asof:/data), give that to the user of the container before:
# chown 65532:65532 /srv/asof
#
# asof has no authentication of its own yet, so it refuses to listen on other
# addresses than the machine's own, and a container's port can be published only
# when it listens on all of them. ASOF_INSECURE_NO_AUTH=true says that this is
# meant; keep the published port on 127.0.0.1 (as above), or put something in
# front of it that knows who may come in.
#
# The digest says which image it is; the tag before it is for people. Both are of
# https://github.com/docker-library/repo-info. For a newer image change both:
# docker buildx imagetools inspect golang:1.26-bookworm

FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:f4191582e1522dfc5980a6bdc0309a756f9697f3e7d0f199c7e26fc82ab324fd AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY LICENSE THIRD_PARTY_NOTICES server.go ./
COPY dataloader/ dataloader/
COPY graph/ graph/
COPY internal/ internal/
COPY resolvers/ resolvers/
COPY storage/ storage/
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/asof . \
    && mkdir -p -m 1777 /out/root/tmp && mkdir /out/data

# The program, its licenses, and what it needs of a system: certificates of public
# authorities (for mongodb+srv://), and /tmp (for SQLite).
FROM scratch
COPY --from=build /out/asof /asof
COPY --from=build /src/LICENSE /src/THIRD_PARTY_NOTICES /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/root/ /
# A new volume takes the owner of the directory that it covers.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
WORKDIR /data
ENV ASOF_ADDR=0.0.0.0:8080 \
    ASOF_STORE=sqlite:/data/asof.db \
    ASOF_LOG_FORMAT=json
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/asof", "health"]
ENTRYPOINT ["/asof"]
CMD ["serve"]
