#!/bin/sh
# Anchor: bytes passed through without buffering. PORT, MOCK_HOSTPORT, TARGET_DIR (a folder for its files).
set -eu
cat > "$TARGET_DIR/nginx.conf" <<CONF
daemon off;
worker_processes 1;
worker_rlimit_nofile 16000;
pid $TARGET_DIR/pid;
error_log stderr;
events { worker_connections 8000; }
http {
  access_log off;
  client_body_temp_path $TARGET_DIR/body;
  proxy_temp_path $TARGET_DIR/proxy;
  fastcgi_temp_path $TARGET_DIR/fastcgi;
  uwsgi_temp_path $TARGET_DIR/uwsgi;
  scgi_temp_path $TARGET_DIR/scgi;
  client_body_buffer_size 1m;
  upstream mock { server $MOCK_HOSTPORT; keepalive 512; }
  server {
    listen 127.0.0.1:$PORT backlog=4096;
    keepalive_requests 1000000;
    location / {
      proxy_pass http://mock;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 300s;
    }
  }
}
CONF
exec nginx -c "$TARGET_DIR/nginx.conf" -p "$TARGET_DIR" -e stderr
