#!/bin/sh
# /usr/local/bin/copilot-runtime: a command with the user, the folder and the settings of the
# service. As root: copilot-runtime operate keys create me --role operator
exec systemd-run --quiet --pipe --wait --collect --service-type=exec \
    --uid=copilot-runtime --working-directory=/var/lib/copilot-runtime \
    --setenv=COPILOT_CONFIG=/etc/copilot-runtime/copilot.yml \
    --property=EnvironmentFile=-/etc/copilot-runtime/env --property=UMask=0077 \
    --property=LimitNOFILE=65536 \
    /opt/copilot-runtime/bin/copilot-runtime "$@"
