# A workload with a known hot method under the Ruby SDK: three quarters of the CPU time belong to
# burn_hot, one quarter to burn_cold.
require "pyroscope"

# Operators on small numbers only: a call of a C function, even Integer#times, is a frame of its own.
def burn_hot(rounds)
  x = 1
  i = 0
  while i < rounds
    x = (x * 1664525 + i) & 0xffffff
    i += 1
  end
  x
end

def burn_cold(rounds)
  x = 2
  i = 0
  while i < rounds
    x = (x * 22695477 + i) & 0xffffff
    i += 1
  end
  x
end

Pyroscope.configure do |c|
  c.application_name = ENV.fetch("APP")
  c.server_address = ENV.fetch("SERVER")
  c.basic_auth_username = ENV["BASIC_USER"] if ENV["BASIC_USER"]
  c.basic_auth_password = ENV["BASIC_PASSWORD"] if ENV["BASIC_PASSWORD"]
  c.tenant_id = ENV["TENANT"] if ENV["TENANT"]
  c.http_headers = { "Authorization" => "Bearer #{ENV["BEARER"]}" } if ENV["BEARER"]
  c.tags = { "region" => "north" }
end

till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ENV.fetch("SECONDS_TO_RUN").to_i
Pyroscope.tag_wrapper({ "job" => "burn" }) do
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) < till
    burn_hot(300_000)
    burn_cold(100_000)
  end
end
sleep 11 # the SDK uploads every ten seconds
Pyroscope.shutdown
