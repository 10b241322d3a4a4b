# A workload with a known hot method under the Ruby SDK: three quarters of the CPU time belong to
# burn_hot, one quarter to burn_cold.
require "pyroscope"

def burn_hot(rounds)
  x = 1
  rounds.times { |i| x = (x * 6364136223846793005 + i) & 0xffffffff }
  x
end

def burn_cold(rounds)
  x = 2
  rounds.times { |i| x = (x * 2862933555777941757 + i) & 0xffffffff }
  x
end

Pyroscope.configure do |c|
  c.application_name = ENV.fetch("APP")
  c.server_address = ENV.fetch("SERVER")
  c.basic_auth_username = ENV["BASIC_USER"] if ENV["BASIC_USER"]
  c.basic_auth_password = ENV["BASIC_PASSWORD"] if ENV["BASIC_PASSWORD"]
  c.tenant_id = ENV["TENANT"] if ENV["TENANT"]
  c.tags = { "region" => "north" }
end

till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ENV.fetch("SECONDS_TO_RUN").to_i
Pyroscope.tag_wrapper({ "job" => "burn" }) do
  while Process.clock_gettime(Process::CLOCK_MONOTONIC) < till
    burn_hot(150_000)
    burn_cold(50_000)
  end
end
sleep 11 # the SDK uploads every ten seconds
Pyroscope.shutdown
